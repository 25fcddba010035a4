/** Puts a text in front of scripts at run time. The scripts themselves stay as they are. */
import { bytesToHex } from '@noble/hashes/utils.js'
import type { Script, ScriptText } from '../store/store.ts'
import { FIRST_LINES } from './create-script.ts'

/** Creates a function that makes the script behind a text: once for each script. */
export function scriptBehind(text: string): (script: Script) => Promise<Script> {
  const known = new WeakMap<Script, Script>()
  return async script => {
    const made = known.get(script) ?? {
      keyLocking: await build('keyLocking', script),
      plain: await build('plain', script),
    }
    // Not the promise, which on Workers belongs to one request.
    known.set(script, made)
    return made
  }

  async function build(kind: keyof Script, script: Script): Promise<ScriptText> {
    const first = FIRST_LINES[kind]
    const source = first + text + script[kind].source.slice(first.length)
    // A built Worker has no SHA-1 of its own.
    const digest = await crypto.subtle.digest('SHA-1', new TextEncoder().encode(source))
    return { source, sha1: bytesToHex(new Uint8Array(digest)) }
  }
}
