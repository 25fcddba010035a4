/** The script of signal.ts, made of signal.lua. One for all signals. */
import type { Script } from '../store/store.ts'
import { createScript } from './create-script.ts'
import { PRELUDE, SIGNAL } from './lua.generated.ts'

export function signalText(): string {
  return `local now = ARGV[2]\n${PRELUDE}${SIGNAL}`
}

let script: Script | undefined

/** Compiled when it is first needed. */
export function signalScript(): Script {
  script ??= createScript(signalText())
  return script
}
