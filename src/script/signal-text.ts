/** The script of signal.ts, made of signal.lua. One for all signals. */
import type { Script } from '../store/store.ts'
import { PRELUDE, SIGNAL } from './lua.generated.ts'
import { scriptOf } from './script-of.ts'

export function signalText(): string {
  return `local now = ARGV[2]\n${PRELUDE}${SIGNAL}`
}

let script: Script | undefined

/** Compiled when it is first needed. */
export function signalScript(): Script {
  script ??= scriptOf(signalText())
  return script
}
