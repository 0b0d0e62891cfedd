/* Fills the version menu from versions.json, which lies one folder above every version, and says
   on a page of an old release that it is one. Opened as a file, a page leaves its menu as it is. */

"use strict";

(() => {
  const tree = new URL(document.documentElement.dataset.content_root, location.href);
  const root = new URL("../", tree);

  function fill(list) {
    const menu = document.getElementById("gallery-versions");
    // The pages at the site's root are in the frame of a version, and no page of it.
    const inside = location.pathname.startsWith(tree.pathname);
    const path = inside ? location.pathname.slice(tree.pathname.length) : "";
    // Hosts serve index.html for a folder, and some of them page.html for page.
    const page = path.replace(/(^|\/)$/, "$1index.html").replace(/(^|\/)([^./]+)$/, "$1$2.html");
    let file = page;
    try { file = decodeURIComponent(page); } catch { /* a lone %: as it is */ }
    const hasPage = (version) => list.pages[version.pages].includes(file);
    const address = (name, version) =>
      new URL(`${name}/${hasPage(version) ? page + location.hash : ""}`, root);

    const items = document.createElement("ul");
    items.className = "gallery-version-list";
    for (const version of list.versions) {
      const words = [];
      if (version.name === list.stable && version.kind === "tag") words.push("stable");
      if (version.kind === "branch") words.push("in development");
      if (version.prerelease) words.push("pre-release");
      if (version.old) words.push("old");
      if (!hasPage(version)) words.push("without this page");

      const link = element("a", version.name);
      link.href = address(version.name, version);
      if (version.name === menu.dataset.version) link.setAttribute("aria-current", "true");
      const item = element("li", link, element("small", words.join(", ")));
      items.append(item);
    }
    menu.prepend(items);

    // A build that is not published yet is its own root.
    if (root.href !== tree.href) menu.querySelector("p:last-child a").href = new URL("versions.html", root);

    const current = list.versions.find((version) => version.name === menu.dataset.version);
    const stable = list.versions.find((version) => version.name === list.stable);
    if (current?.old) {
      const link = element("a", `the stable release, ${stable.name}`);
      link.href = address("stable", stable);
      const kind = current.prerelease ? "an old pre-release" : "an old release";
      const note = element("p", `This page is of ${current.name}, ${kind}. `, "There is ", link, ".");
      const box = element("div", note);
      box.className = "admonition warning gallery-old";
      box.setAttribute("role", "note");
      document.querySelector('[role="main"]').prepend(box);
    }
  }

  function element(name, ...content) {
    const made = document.createElement(name);
    made.append(...content);
    return made;
  }

  addEventListener("DOMContentLoaded", () => {
    if (!location.protocol.startsWith("http")) return;
    fetch(new URL("versions.json", root))
      .then((answer) => (answer.ok ? answer.json().then(fill) : undefined))
      .catch(() => {}); // without the list, the plain link is there
  });
})();
