/* Fills the version menu from versions.json, one folder above every version, and marks the pages of
   an old release. Without that file, as in a build on disk, the menu keeps its plain link. */

"use strict";

addEventListener("DOMContentLoaded", async () => {
  const tree = new URL(document.documentElement.dataset.content_root, location.href);
  const root = new URL("../", tree);
  const menu = document.getElementById("gallery-versions");
  if (!menu || !location.protocol.startsWith("http")) return;
  const answer = await fetch(new URL("versions.json", root)).catch(() => null);
  if (!answer?.ok) return;
  const list = await answer.json();

  // Hosts serve index.html for a folder, and some of them page.html for page.
  const page = location.pathname.slice(tree.pathname.length)
    .replace(/(^|\/)$/, "$1index.html").replace(/(^|\/)([^./]+)$/, "$1$2.html");
  const hasPage = (version) => list.pages[version.pages].includes(decodeURIComponent(page));
  const link = (version, name, text) => {
    const path = hasPage(version) ? page + location.hash : "";
    return element("a", { href: new URL(`${name}/${path}`, root) }, text);
  };

  const stable = list.versions.findIndex((version) => version.name === list.stable);
  const items = list.versions.map((version, index) => {
    // Releases are listed from the newest to the oldest.
    const release = index < stable ? "pre-release" : index > stable ? "old" : "stable";
    const words = [version.kind === "tag" ? release : "in development"];
    if (!hasPage(version)) words.push("without this page");
    const name = link(version, version.name, version.name);
    const current = version.name === menu.dataset.version;
    if (current) name.setAttribute("aria-current", "true");
    if (current && words[0] === "old") {
      const instead = link(list.versions[stable], "stable", `the stable release, ${list.stable}`);
      const note = element("p", {}, `This page is of ${version.name}, an old release. See `, instead, ".");
      const box = element("div", { className: "admonition warning gallery-old", role: "note" }, note);
      document.querySelector('[role="main"]').prepend(box);
    }
    return element("li", {}, name, element("small", {}, words.join(", ")));
  });
  menu.prepend(element("ul", { className: "gallery-version-list" }, ...items));
  menu.querySelector("p:last-child a").href = new URL("versions.html", root);
});

function element(name, properties, ...content) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...content);
  return made;
}
