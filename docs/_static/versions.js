/* Fills the version menu from versions.json, one folder above every version, and marks the pages of
   an old release. Without that file, as in a build on disk, the menu keeps its plain link. Which
   versions have this page is in a second file, which is read when the menu opens. */

"use strict";

addEventListener("DOMContentLoaded", async () => {
  const tree = new URL(document.documentElement.dataset.content_root, location.href);
  const root = new URL("../", tree);
  const menu = document.getElementById("gallery-versions");
  if (!menu || !location.protocol.startsWith("http")) return;
  const list = await read(new URL("versions.json", root));
  if (!list) return;
  menu.querySelector("p:last-child a").href = new URL("versions.html", root);

  // Hosts serve index.html for a folder, and some of them page.html for page.
  const page = location.pathname.slice(tree.pathname.length)
    .replace(/(^|\/)$/, "$1index.html").replace(/(^|\/)([^./]+)$/, "$1$2.html");
  let runs = null; // the first and the last index of versions with this page
  const readRuns = async () => {
    const found = await read(new URL("versions-pages.json", root));
    runs ??= found?.pages[decodeURIComponent(page)] ?? [];
  };
  const hasPage = (index) => runs.some(([first, last]) => first <= index && index <= last);
  const link = (index, name, text) => {
    const path = hasPage(index) ? page + location.hash : "";
    return element("a", { href: new URL(`${name}/${path}`, root) }, text);
  };

  const stable = list.versions.findIndex((version) => version.name === list.stable);
  const state = (version, index) => {
    if (version.kind !== "tag") return "in development";
    // Releases are listed from the newest to the oldest.
    if (index === stable) return "stable";
    return index < stable ? "pre-release" : "old";
  };
  const isCurrent = (version) => version.name === menu.dataset.version;

  const fillMenu = async () => {
    await readRuns();
    const items = list.versions.map((version, index) => {
      const words = [state(version, index)];
      if (!hasPage(index)) words.push("without this page");
      const name = link(index, version.name, version.name);
      if (isCurrent(version)) name.setAttribute("aria-current", "true");
      return element("li", {}, name, element("small", {}, words.join(", ")));
    });
    menu.prepend(element("ul", { className: "gallery-version-list" }, ...items));
  };
  const details = menu.closest("details");
  if (details.open) fillMenu();
  else details.addEventListener("toggle", fillMenu, { once: true });

  const current = list.versions.findIndex(isCurrent);
  if (current >= 0 && state(list.versions[current], current) === "old") {
    await readRuns();
    const instead = link(stable, "stable", `the stable release, ${list.stable}`);
    const name = list.versions[current].name;
    const note = element("p", {}, `This page is of ${name}, an old release. See `, instead, ".");
    const box = element("div", { className: "admonition warning gallery-old", role: "note" }, note);
    document.querySelector('[role="main"]').prepend(box);
  }
});

async function read(address) {
  const answer = await fetch(address).catch(() => null);
  return answer?.ok ? answer.json() : null;
}

function element(name, properties, ...content) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...content);
  return made;
}
