/** The two builds of a script, from the pieces that src/node/bundle-lua.ts has cut it into. */
import type { Script } from '../store/store.ts'

/** The plain build keeps the place of the first line empty: lines count the same in both. */
const FIRST_LINES = { keyLocking: '#!lua flags=allow-key-locking\n', plain: '\n' }

export function twoBuilds(sha1: Record<keyof Script, string>, pieces: readonly string[]): Script {
  const body = pieces.join('')
  return {
    keyLocking: { source: FIRST_LINES.keyLocking + body, sha1: sha1.keyLocking },
    plain: { source: FIRST_LINES.plain + body, sha1: sha1.plain },
  }
}
