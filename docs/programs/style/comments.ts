/**
 * The comments and docstrings of a TypeScript file as one Markdown text, for the same rules as the pages. Comments are apart from each
 * other by a blank line. `@param`, `@returns` and `@throws` begin a paragraph; directives for tools are left out.
 */

export interface Comments {
  markdown: string
  /** Of each line of the text: its line in the file (from 1), and the characters before it there. Absent: a blank line in between. */
  places: readonly (Place | undefined)[]
}

interface Place {
  line: number
  before: number
}

const TOKEN =
  /(?<comment>\/\/.*|\/\*[\s\S]*?\*\/)|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|(?<slash>\/)|(?<template>`)|[{}]/g
const REGEX = /\/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\[\n])+\/[a-z]*/y
const TEMPLATE_TEXT = /(?:\\.|\$(?!\{)|[^\\`$])*(?<end>`|\$\{)/sy

/** A `/` after one of these begins a regular expression; after anything else it divides. */
const BEFORE_REGEX = /(?:^|[(,=:[!&|?{};+*%<>~-]|\b(?:return|case|typeof|of|in))\s*$/

const DIRECTIVE = /^(?:@__PURE__|biome-ignore|@ts-)/
const TAG = /^@(?:param \S+|returns|throws)(?: |$)/

export function commentsOf(source: string): Comments {
  const lines: string[] = []
  const places: (Place | undefined)[] = []
  const blank = () => {
    lines.push('')
    places.push(undefined)
  }
  let lastLine = 0
  let wasBlock = true
  for (const { text, index } of commentTokens(source)) {
    const isBlock = text.startsWith('/*')
    const line = source.slice(0, index).split('\n').length
    const column = index - source.lastIndexOf('\n', index - 1) - 1
    const isAlone = source.slice(index - column, index).trim() === ''
    // Lines of `//` that follow each other are one comment.
    if (isBlock || wasBlock || !isAlone || line !== lastLine + 1) blank()
    const content = isBlock ? text.replace(/\*\/$/, '') : text
    for (const [at, raw] of content.split('\n').entries()) {
      const marker = at === 0 ? /^\/(?:\/|\*+) ?/ : /^\s*\*? ?/
      let before = marker.exec(raw)?.[0].length ?? 0
      const tag = TAG.exec(raw.slice(before))
      if (tag) blank()
      before += tag?.[0].length ?? 0
      const said = raw.slice(before)
      lines.push(DIRECTIVE.test(said.trimStart()) ? '' : said)
      places.push({ line: line + at, before: at === 0 ? column + before : before })
    }
    lastLine = line + content.split('\n').length - 1
    wasBlock = isBlock
    if (!isBlock && !isAlone) wasBlock = true
  }
  return { markdown: lines.join('\n'), places }
}

/** Comments outside strings, templates and regular expressions. */
function* commentTokens(source: string): Generator<{ text: string; index: number }> {
  // Of each `{` that is open: whether it is a `${` of a template.
  const braces: boolean[] = []
  const skip = (pattern: RegExp, from: number) => {
    pattern.lastIndex = from
    const match = pattern.exec(source)
    if (match) TOKEN.lastIndex = pattern.lastIndex
    return match
  }
  const skipTemplate = (from: number) => {
    if (skip(TEMPLATE_TEXT, from)?.groups?.end === '${') braces.push(true)
  }
  TOKEN.lastIndex = 0
  for (let match = TOKEN.exec(source); match; match = TOKEN.exec(source)) {
    const { 0: text, index } = match
    if (match.groups?.comment) yield { text, index }
    else if (match.groups?.slash && BEFORE_REGEX.test(source.slice(0, index))) skip(REGEX, index)
    else if (match.groups?.template) skipTemplate(index + 1)
    else if (text === '{') braces.push(false)
    else if (text === '}' && braces.pop()) skipTemplate(index + 1)
  }
}
