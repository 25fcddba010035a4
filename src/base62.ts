/** The base-62 alphabet, for API keys, the tags of rules and the names of isolates. */
export const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

/** Random bytes for many names, because a call of the platform for each would take longer than all else about it. */
const random = new Uint8Array(512)
let used = random.length

/** Random letters and digits, at most 512, for names. Not for secrets: the first eight of the alphabet are more likely than the others. */
export function randomName(length: number): string {
  if (used + length > random.length) {
    crypto.getRandomValues(random)
    used = 0
  }
  let name = ''
  for (const end = used + length; used < end; used++) name += BASE62[random[used]! % 62]
  return name
}
