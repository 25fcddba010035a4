/** The rules of the prose linter, for textlint. Each checks the prose of a document; style.ts beside it has the words. */
import type { TextlintKernelRule } from '@textlint/kernel'
import { linesOf, type Prose, proseOf, sentencesOf, type TextNode, wordsOf } from './prose.ts'
import { MAX_SENTENCE_WORDS, PHRASES, TERMS, WORDS, type Wording } from './style.ts'

type Rule = Extract<TextlintKernelRule['rule'], (...parameters: never) => unknown>

interface Finding {
  message: string
  /** Offsets in the text of the prose. */
  start: number
  end: number
}

export const RULES: Readonly<Record<string, Rule>> = {
  phrase: ruleOf(prose => wordingsIn(prose, PHRASES)),
  word: ruleOf(prose => wordingsIn(prose, WORDS)),
  term: ruleOf(prose => wordingsIn(prose, TERMS)),
  'sentence-length': ruleOf(longSentencesIn),
  'doubled-word': ruleOf(doubledWordsIn),
}

function wordingsIn(prose: Prose, wordings: readonly Wording[]): Finding[] {
  return sentencesOf(prose).flatMap(sentence =>
    wordings.flatMap(({ pattern, instead, notInHeadings }) => {
      if (notInHeadings && prose.isHeading) return []
      return Array.from(
        sentence.text.matchAll(new RegExp(pattern, `${pattern.flags}g`)),
        ({ 0: found, index }) => {
          const start = sentence.start + index
          return { message: `"${shortened(found)}": ${instead}.`, start, end: start + found.length }
        },
      )
    }),
  )
}

function longSentencesIn(prose: Prose): Finding[] {
  return sentencesOf(prose).flatMap(({ text, start }) => {
    const words = wordsOf(text)
    if (words <= MAX_SENTENCE_WORDS) return []
    const message = `"${shortened(text)}": ${words} words in one sentence. Split it: at most ${MAX_SENTENCE_WORDS}.`
    return { message, start, end: start + text.length }
  })
}

/** "had had" and "that that" can be good English. */
const DOUBLED = /(?<![\p{L}\p{N}-])(?!(?:had|that)\s)(\p{L}+)(?: |\s*\n\s*)\1(?![\p{L}\p{N}-])/giu

function doubledWordsIn({ text }: Prose): Finding[] {
  return Array.from(text.matchAll(DOUBLED), ({ 0: doubled, 1: word, index }) => ({
    message: `"${shortened(doubled)}": write "${word}" once.`,
    start: index,
    end: index + doubled.length,
  }))
}

function ruleOf(findingsIn: (prose: Prose) => Finding[]): Rule {
  return ({ report, RuleError, locator }) => {
    const check = (node: TextNode, proses: readonly Prose[]) => {
      for (const prose of proses) {
        for (const { message, start, end } of findingsIn(prose)) {
          const from = prose.offsets[start]! - node.range[0]
          const to = prose.offsets[end - 1]! + 1 - node.range[0]
          report(
            node as Parameters<typeof report>[0],
            new RuleError(message, { padding: locator.range([from, to]) }),
          )
        }
      }
    }
    return {
      Paragraph: node => check(node, [proseOf(node)]),
      Header: node => check(node, [proseOf(node)]),
      TableCell: node => check(node, [proseOf(node)]),
      CodeBlock: node => check(node, node.lang === 'text' ? linesOf(node) : []),
    }
  }
}

function shortened(text: string): string {
  const line = text.replaceAll('\uFFFC', '`…`').replaceAll(/\s+/g, ' ').trim()
  return line.length > 60 ? `${line.slice(0, 59)}…` : line
}
