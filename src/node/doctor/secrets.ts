/** Hides what was given to an examination, in whatever form: users paste the report into issues. */
import { unescape as decoded } from 'node:querystring'

/** Shorter ones would also be found inside words. */
const MIN_LENGTH = 4

/** @param inputs URLs, tokens and keys @returns replaces them in all texts of a value */
export function hiderOf(inputs: readonly (string | undefined)[]): <T>(value: T) => T {
  const forms = inputs
    .flatMap(input => (input === undefined ? [] : partsOf(input)))
    .flatMap(part => {
      const [bytes, json] = [Buffer.from(part), JSON.stringify(part).slice(1, -1)]
      return [part, encodeURIComponent(part), json, bytes.toString('base64'), bytes.toString('base64url')]
    })
  // The longest first, so that no rest of it stays.
  const secrets = forms.filter(({ length }) => length >= MIN_LENGTH).sort((a, b) => b.length - a.length)
  const patterns = secrets.map(secret => new RegExp(secret.replaceAll(/\W/g, String.raw`\$&`), 'gi'))
  const hide = (text: string) =>
    patterns.reduce((hidden, pattern) => hidden.replaceAll(pattern, '<hidden>'), text)
  return value =>
    JSON.parse(JSON.stringify(value), (_, each) => (typeof each === 'string' ? hide(each) : each))
}

/** All words of a URL: also hosts of a cluster, and the first label of a host, which at Upstash is the name of the database. */
function partsOf(input: string): string[] {
  const [, rest = ''] = /^[a-z+]+:\/\/(.*)$/is.exec(input) ?? []
  const words = [...(URL.canParse(input) ? [new URL(input).host] : []), ...rest.split(/[/@:,?&=[\]]+/)]
  return [input, ...words.flatMap(word => [word, decoded(word), word.split('.')[0]!])]
}
