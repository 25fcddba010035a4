/** Scripts that were compiled when the Worker was built. The Worker carries their text, and no compiler. */

import { fnv1a } from '../hash.ts'
import { notBuiltError } from '../not-built.ts'
import type { Script } from '../store/store.ts'
import { FIRST_LINES } from './create-script.ts'
import type { RuleSetScripts, RuleSetShape } from './rule-set-shape.ts'

/** A script as it is in src/built/worker.generated.ts. */
export interface BuiltScript {
  /** Without the first line (create-script.ts). */
  text: string
  /** Only of the builds that this Worker uses. */
  sha1: Readonly<Partial<Record<keyof Script, string>>>
}

/** The built scripts of one rule set. */
export type BuiltScripts = Partial<Record<'decide' | 'refund' | 'settle', BuiltScript>>

/** A fingerprint of everything that the scripts depend on. Rules with other numbers have another one. */
export function fingerprintOf(shape: RuleSetShape): string {
  const { entries, identities, plans, hasSubject, leases, overridable } = shape
  return fnv1a(JSON.stringify({ entries, identities, plans, hasSubject, leases, overridable })).toString(36)
}

/**
 * Creates the function that finds the built scripts of a rule set.
 * @param built by the fingerprint of the rule set
 * @returns a function that throws if the rule set was not built. Scripts that the config does not use are absent
 */
export function createScriptFinder(
  built: Readonly<Record<string, BuiltScripts>>,
): (shape: RuleSetShape) => RuleSetScripts {
  return shape => {
    const scripts = built[fingerprintOf(shape)]
    // Now, so that this fails at start-up, and not as a failure of the limits at the first request.
    if (!scripts) throw notBuiltError('the scripts of these rules')
    const restored = Object.entries(scripts).map(([name, script]) => [name, toScript(script)])
    return Object.fromEntries(restored) as RuleSetScripts
  }
}

/** Creates a function that returns a built script. Used for the scripts that all configs share: of sync.ts and signal.ts. */
export const restoreScript = (built: BuiltScript) => () => toScript(built)

function toScript({ text, sha1 }: BuiltScript): Script {
  const build = (kind: keyof Script) => ({ source: FIRST_LINES[kind] + text, sha1: sha1[kind] ?? '' })
  return { keyLocking: build('keyLocking'), plain: build('plain') }
}
