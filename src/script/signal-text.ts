/** The script of signal.ts, from signal.lua. One script for all signals. */
import type { Script } from '../store/store.ts'
import { createScript } from './create-script.ts'
import { PRELUDE, SIGNAL } from './lua.generated.ts'

/** The text of the script. */
export function signalText(): string {
  return `local now = ARGV[2]\n${PRELUDE}${SIGNAL}`
}

let script: Script | undefined

/** The script, compiled at its first use. */
export function signalScript(): Script {
  script ??= createScript(signalText())
  return script
}
