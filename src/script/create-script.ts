/** Creates the two builds of a script. */
import { sha1 } from '../sha1.ts'
import type { Script } from '../store/store.ts'
import { shortenScript } from './shorten-script.ts'

/** The first line of each build. It is empty in the plain build, so that line numbers are the same in both. */
export const FIRST_LINES = { keyLocking: '#!lua flags=allow-key-locking\n', plain: '\n' } as const

/** Creates a script from its text. Each build is created at its first use, from the shortened text (shorten-script.ts). */
export function createScript(text: string): Script {
  const builds: Partial<Script> = {}
  let short: string | undefined
  const build = (kind: keyof Script) => {
    short ??= shortenScript(text)
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
