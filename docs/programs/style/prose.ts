/**
 * The prose of a document as plain text: its paragraphs, headings and table cells, and the lines of output in a block marked `text`.
 * Inline code, a bare URL and an image count as one word. Each character keeps its offset in the file, for the place of a finding.
 */

/** A node of textlint's syntax tree (https://textlint.org/docs/txtnode/): the part of it that is read here. */
export interface TextNode {
  type: string
  raw: string
  /** Offsets of its beginning and its end in the file. */
  range: readonly [number, number]
  children?: readonly TextNode[]
  /** The language of a code block. */
  lang?: string | null | undefined
}

export interface Prose {
  text: string
  /** The offset of each character of `text` in the file. */
  offsets: readonly number[]
  isHeading: boolean
}

export interface Sentence {
  text: string
  /** Its offset in the text of its prose. */
  start: number
}

/** Stands for inline code, a bare URL or an image. */
export const PLACEHOLDER = '\uFFFC'

const ONE_WORD = new Set(['Code', 'Image', 'ImageReference', 'FootnoteReference'])
const BARE_URL = /^<?https?:/

/** Of a paragraph, a heading or a table cell. */
export function proseOf(node: TextNode): Prose {
  let text = ''
  const offsets: number[] = []
  const add = (part: string, offset: number) => {
    for (let index = 0; index < part.length; index++) offsets.push(offset + index)
    text += part
  }
  const visit = (inline: TextNode) => {
    const [start] = inline.range
    if (ONE_WORD.has(inline.type) || BARE_URL.test(inline.raw)) add(PLACEHOLDER, start)
    else if (inline.type === 'Break') add(' ', start)
    // `<br>` in a table cell separates paragraphs.
    else if (inline.type === 'Html' && /^<br\b/.test(inline.raw)) add('\n\n', start)
    else if (inline.type === 'Str') add(inline.raw, start)
    else for (const child of inline.children ?? []) visit(child)
  }
  for (const child of node.children ?? []) visit(child)
  return { text, offsets, isHeading: node.type === 'Header' }
}

/** Each line of a code block is prose of its own: output and messages are printed line by line. `⏎` is a line break of a message. */
export function linesOf(block: TextNode): Prose[] {
  const lines = [...block.raw.matchAll(/[^\n⏎]+/g)].slice(1, -1)
  return lines.map(({ 0: text, index }) => ({
    text,
    offsets: Array.from(text, (_, at) => block.range[0] + index + at),
    isHeading: false,
  }))
}

/** Not the end of a sentence. */
const ABBREVIATION = /(?:\b(?:e\.g|i\.e|etc|vs|cf|approx)|^)\.$/
const SENTENCE_END = /[.!?]['"”’)\]]*\s+|\n\n/g

export function sentencesOf({ text }: Prose): Sentence[] {
  const starts = [0]
  for (const { 0: end, index } of text.matchAll(SENTENCE_END)) {
    if (!ABBREVIATION.test(text.slice(0, index + 1))) starts.push(index + end.length)
  }
  return starts.map((start, at) => ({ text: text.slice(start, starts[at + 1]).trimEnd(), start }))
}

/** Dashes and arrows between words are not words. */
export const wordsOf = (text: string): number =>
  text.split(/\s+/).filter(word => /[\p{L}\p{N}\uFFFC]/u.test(word)).length
