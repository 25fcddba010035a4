/**
 * The scripts of a policy, compiled when they are first needed. The Worker carries no compiler: it has those that were built
 * (built-scripts.ts).
 */
import type { Script } from '../store/store.ts'
import { createScript } from './create-script.ts'
import type { PolicyScripts, PolicyShape } from './policy-shape.ts'
import { decideText, refundText } from './policy-text.ts'

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
