/** Parses the part of RFC 9651 that the RateLimit fields use: a List of String Items with parameters. */

/** A string item and its parameters. Byte sequences stay in base64, booleans are `?1` and `?0`. */
export interface NamedItem {
  name: string
  parameters: ReadonlyMap<string, number | string>
}

/**
 * One bare item. Of the groups, one matches: a string, a number, or a byte sequence. Without a group: a token, a boolean or a date. A
 * display string (`%"…"`) is not understood, so that its field is ignored.
 */
const BARE =
  /"((?:[ !#-[\]-~]|\\["\\])*)"|(-?(?:\d{1,12}\.\d{1,3}|\d{1,15}))|:([A-Za-z\d+/]*={0,2}):|\?[01]|[A-Za-z*][\w!#$%&'*+.^`|~:/-]*|@-?\d{1,15}/y
const KEY = /; *([a-z*][a-z\d_.*-]*)(=?)/y
const COMMA = /[ \t]*(?:,[ \t]*|$)/y

/** The longest field that is read (characters). */
const MAX_LENGTH = 4_000

/** @param field without spaces at its ends, as `Headers` has it @returns the items; none if the field is not a list of strings */
export function parseList(field: string): NamedItem[] {
  const items: NamedItem[] = []
  let at = 0
  const next = (pattern: RegExp) => {
    pattern.lastIndex = at
    const match = pattern.exec(field)
    if (match) at = pattern.lastIndex
    return match
  }
  // A name keeps its whole field in memory.
  while (at < field.length && field.length < MAX_LENGTH) {
    const [, name] = next(BARE) ?? []
    if (name === undefined) return []
    const parameters = new Map<string, number | string>()
    for (let key = next(KEY); key; key = next(KEY)) {
      const value = key[2] ? next(BARE) : ['?1']
      if (!value) return []
      const [token, string, number, bytes] = value
      parameters.set(
        key[1]!,
        number ? Number(number) : (bytes ?? (string === undefined ? token! : unescaped(string))),
      )
    }
    items.push({ name: unescaped(name), parameters })
    const comma = next(COMMA)
    // A comma at the end is a mistake, so the whole field is ignored (RFC 9651, section 4.2.1).
    if (!comma || (comma[0].includes(',') && at === field.length)) return []
  }
  return items
}

const unescaped = (string: string) => string.replace(/\\(.)/g, '$1')
