/**
 * Compiles the scripts of a policy when they are first needed. A built Worker does not carry this compiler: its scripts were
 * compiled before (built-scripts.ts).
 */
import type { Script } from '../store/store.ts'
import { createScript } from './create-script.ts'
import type { PolicyScripts, PolicyShape } from './policy-shape.ts'
import { decideText, refundText } from './policy-text.ts'

/** The scripts of a policy. Each is compiled at its first use. */
export function compileScripts(shape: PolicyShape): PolicyScripts {
  let decide: Script | undefined
  let refund: Script | undefined
  return {
    get decide() {
      decide ??= createScript(decideText(shape))
      return decide
    },
    get refund() {
      refund ??= createScript(refundText(shape))
      return refund
    },
  }
}
