/** A script in its two builds, from its text. */
import { sha1 } from '../sha1.ts'
import type { Script } from '../store/store.ts'
import { shortText } from './short-text.ts'

/** The plain build keeps the place of the first line empty: lines count the same in both. */
export const FIRST_LINES = { keyLocking: '#!lua flags=allow-key-locking\n', plain: '\n' } as const

/** Each build is made when it is first needed, from the text in short (short-text.ts). */
export function createScript(text: string): Script {
  const builds: Partial<Script> = {}
  let short: string | undefined
  const build = (kind: keyof Script) => {
    short ??= shortText(text)
    const source = FIRST_LINES[kind] + short
    return { source, sha1: sha1(source) }
  }
  return {
    get keyLocking() {
      builds.keyLocking ??= build('keyLocking')
      return builds.keyLocking
    },
    get plain() {
      builds.plain ??= build('plain')
      return builds.plain
    },
  }
}
