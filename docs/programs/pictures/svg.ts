/** What the hand-written SVG pictures have in common: their frame and their escapes. */

/** The parts of a picture. It needs no fonts and no other files. */
export interface Picture {
  /** px */
  width: number
  /** px */
  height: number
  /** The name that a screen reader gives to the picture. */
  title: string
  /** What the picture shows, in sentences. */
  description: string
  /** CSS of the picture alone. */
  style: string
  /** SVG elements, one a line. */
  body: readonly string[]
}

/** @returns a whole SVG document that ends with a line break */
export function svgOf({ width, height, title, description, style, body }: Picture): string {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" ` +
      'role="img" aria-labelledby="title desc">',
    `<title id="title">${escapeXml(title)}</title>`,
    `<desc id="desc">${escapeXml(description)}</desc>`,
    `<style>\n${style.trim()}\n</style>`,
    ...body,
    '</svg>',
    '',
  ].join('\n')
}

/** @param classes names of CSS classes, with spaces between them */
export function text(x: number, y: number, content: string, classes = ''): string {
  return `<text${classes && ` class="${classes}"`} x="${x}" y="${y}">${escapeXml(content)}</text>`
}

/** Text for an element or for an attribute in double quotes. */
export function escapeXml(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
}
