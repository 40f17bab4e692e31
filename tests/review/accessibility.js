// Every problem of the page as it is shown: controls without a name, too little contrast, targets too small, broken ids.
() => {
  const problems = [];
  const seen = (e) => e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && e.getClientRects().length > 0;
  const where = (e) => `${e.tagName.toLowerCase()}${e.id ? `#${e.id}` : ""}.${e.className} "${e.textContent.trim().slice(0, 30)}"`;
  const named = (e) =>
    e.getAttribute("aria-label") || e.textContent.trim() || (e.labels && e.labels[0]?.textContent.trim()) || e.getAttribute("aria-labelledby");
  for (const e of document.querySelectorAll("button, a, input, select, textarea, progress, dialog, [role=radiogroup], [role=toolbar], nav, aside"))
    if (seen(e) && !named(e)) problems.push(`no name: ${where(e)}`);
  for (const e of document.querySelectorAll("img")) if (!e.hasAttribute("alt")) problems.push(`no alt: ${where(e)}`);
  for (const name of ["for", "aria-labelledby"])
    for (const e of document.querySelectorAll(`[${name}]`))
      if (!document.getElementById(e.getAttribute(name))) problems.push(`${name} leads nowhere: ${where(e)}`);
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) problems.push(`two of id ${id}`);
  if ([...document.querySelectorAll("h1")].filter(seen).length !== 1) problems.push("not one h1");
  if (!document.documentElement.lang) problems.push("no language");
  if ([...document.querySelectorAll("[tabindex]")].some((e) => e.tabIndex > 0)) problems.push("a positive tabindex");
  if (!document.querySelector("[aria-live]")) problems.push("no live region");

  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (css) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = css;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => top.slice(0, 3).map((c, i) => c * top[3] + under[i] * (1 - top[3])).concat(1);
  const behind = (e) => {
    const layers = [];
    for (let at = e; at; at = at.parentElement) {
      const layer = rgba(getComputedStyle(at).backgroundColor);
      layers.push(layer);
      if (layer[3] === 1) break;
    }
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]);
  };
  const light = (c) => {
    const [r, g, b] = c.slice(0, 3).map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !seen(e) || e.matches("option, .hidden, .skip-link, :disabled, .toast:not(.on)")) continue;
    const style = getComputedStyle(e);
    const under = behind(e);
    const [a, b] = [light(over(rgba(style.color), under)), light(under)].sort((x, y) => y - x);
    const size = Number.parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) problems.push(`contrast ${ratio.toFixed(2)}: ${where(e)}`);
  }
  for (const e of document.querySelectorAll("button, select, input")) {
    const box = e.getBoundingClientRect();
    if (seen(e) && (box.width < 24 || box.height < 24)) problems.push(`small target: ${where(e)}`);
  }
  return problems;
}
