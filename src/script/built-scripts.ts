/** Scripts that were compiled when the Worker was built: it carries their text, and no compiler. */

import { fnv1a } from '../hash.ts'
import { builtForAnotherConfig } from '../not-built.ts'
import type { Script } from '../store/store.ts'
import { FIRST_LINES } from './create-script.ts'
import type { PolicyScripts, PolicyShape } from './policy-shape.ts'

/** One script as it stands in src/built/worker.generated.ts. */
export interface BuiltScript {
  text: string
  /** Without the kinds that the store is never asked for. */
  sha1: Readonly<Partial<Record<keyof Script, string>>>
}

export type BuiltScripts = Partial<Record<keyof PolicyScripts, BuiltScript>>

/** Names what a script was compiled from. Numbers that differ give another name. */
export function fingerprintOf(shape: PolicyShape): string {
  const { slots, identities, plans, hasSubject, leases } = shape
  return fnv1a(JSON.stringify({ slots, identities, plans, hasSubject, leases })).toString(36)
}

/**
 * Finds the scripts of a policy among those that were built.
 * @param built by the fingerprint of the policy
 * @returns throws for a policy that is not among them
 */
export function finderOf(
  built: Readonly<Record<string, BuiltScripts>>,
): (shape: PolicyShape) => PolicyScripts {
  return shape => {
    const scripts = built[fingerprintOf(shape)]
    const find = (name: keyof PolicyScripts) => {
      const script = scripts?.[name]
      if (!script) throw builtForAnotherConfig('the scripts of these rules')
      return inBuilds(script)
    }
    // At once, and not with the first request, where a missing script would be a failure of the limits among others.
    const decide = find('decide')
    return {
      decide,
      get refund() {
        return find('refund')
      },
    }
  }
}

/** A script that is the same for all configs: of sync.ts, of signal.ts. */
export const loadScript = (built: BuiltScript) => () => inBuilds(built)

function inBuilds({ text, sha1 }: BuiltScript): Script {
  const build = (kind: keyof Script) => ({ source: FIRST_LINES[kind] + text, sha1: sha1[kind] ?? '' })
  return { keyLocking: build('keyLocking'), plain: build('plain') }
}
