/** The base-62 alphabet, for API keys, the tags of rules and the names of isolates. */
export const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

/** Random letters and digits, for names. Not for secrets: the first eight of the alphabet are more likely than the others. */
export const randomName = (length: number): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(length)), byte => BASE62[byte % 62]).join('')
