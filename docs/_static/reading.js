// A link into a fold opens it. Browsers that do so by themselves find it open already.
function openAround(anchor) {
  const target = document.getElementById(decodeURIComponent(anchor.slice(1)));
  let opened = false;
  for (let fold = target?.closest("details"); fold; fold = fold.parentElement.closest("details")) {
    opened ||= !fold.open;
    fold.open = true;
  }
  if (opened) target.scrollIntoView();
}
addEventListener("hashchange", () => openAround(location.hash));
openAround(location.hash);
