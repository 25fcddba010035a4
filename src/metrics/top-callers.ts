/**
 * The callers that each rule has refused most, or as a shadow would have: plain data of an isolate, bounded however many callers there
 * are. Each rule has a sketch with 32 counters, by the algorithm Space-Saving (Metwally, Agrawal, El Abbadi: Efficient computation of
 * frequent and top-k elements in data streams, ICDT 2005). A caller without a counter takes over the smallest one, with its count as the
 * possible error. So of N refusals:
 *
 *     no count is too low, and a count is too high by its error at most, which is at most N / 32
 *     each caller with more than N / 32 has a counter
 *     the sum of all counts is N
 *
 * add-callers.ts adds the sketches of all isolates to those of the store.
 */
import { addressText, isIPv4, networkOf, parseAddress } from '../config/address-ranges.ts'
import type { CallerMode } from '../config/caller-mode.ts'
import type { Config } from '../config/compile.ts'
import { escaped } from '../store/escape.ts'
import type { ScriptCall } from '../store/store.ts'
import { type CallerName, type Tally, withCallers } from './add-callers.ts'
import type { Counted } from './observation.ts'
import { TEST_SUFFIX } from './recorded-callers.ts'

/** The caller of a request, or of a call of a limit by name. */
export interface RefusedCaller {
  /** Only if verified. */
  consumer?: string | undefined
  /** Absent: live. */
  mode?: CallerMode
  address?: string | undefined
  identity?: Readonly<Record<string, string | number>>
}

const NONE = '-'

/** The counters of a sketch. */
const SIZE = 32

/** Sketches in one HTTP request. The script takes up to 0.1 ms for each; the others come with later counters. */
const MAX_AT_ONCE = 10

/** The size of the networks that are kept instead of addresses (bits). */
const PREFIX = { ipv4: 24, ipv6: 48 }

export type TopCallers = ReturnType<typeof createTopCallers>

/** @param kept the names that may be kept: those of consumers, or networks too */
export function createTopCallers(kept: NonNullable<NonNullable<Config['stats']>['topCallers']>) {
  const sketches = new Map<string, Map<CallerName, Tally>>()
  /** A lower bound for the counts of each full sketch. */
  const floors = new Map<string, number>()

  function add(counted: string, name: CallerName, { count, error }: Tally): void {
    const sketch = sketches.get(counted) ?? new Map<CallerName, Tally>()
    sketches.set(counted, sketch)
    let tally = sketch.get(name)
    if (!tally) {
      tally = { count: 0, error: 0 }
      if (sketch.size >= SIZE) {
        const [smallest, taken] = leastOf(sketch, floors.get(counted) ?? 1)
        floors.set(counted, taken)
        sketch.delete(smallest)
        tally = { count: taken, error: taken }
      }
      sketch.set(name, tally)
    }
    tally.count += count
    tally.error += error
  }

  function nameOf({ consumer, mode, address = '', identity = {} }: RefusedCaller): CallerName {
    if (consumer) return mode === 'test' ? consumer + TEST_SUFFIX : consumer
    const parts = Object.entries(identity).map(([part, value]) => [`${part}=`, String(value)] as const)
    const names = [['', address] as const, ...parts].flatMap(([part, text]) => {
      const network = networkText(text)
      if (network) return kept === 'networks' ? [part + network] : []
      return part ? [part + escaped(text)] : []
    })
    return names.join(',') || NONE
  }

  return {
    /** Counts a request or a call for each rule that has refused it, or as a shadow would have. */
    record({ limit, verdicts }: Counted, caller: RefusedCaller): void {
      let name: CallerName | undefined
      for (const { rule, mode, allowed } of verdicts) {
        if (allowed) continue
        name ??= nameOf(caller)
        const counted = `${mode === 'shadow' ? 'shadow_' : ''}limited ${limit ? `${limit}/` : ''}${rule.name}`
        add(counted, name, { count: 1, error: 0 })
      }
    },

    /**
     * Adds the counts of some rules to a call that sends counters, and removes them here.
     * @returns the call, and how to take the counts back if it has not arrived
     */
    addTo(call: ScriptCall, at: Date): { call: ScriptCall; putBack(): void } {
      const taken = [...sketches].slice(0, MAX_AT_ONCE)
      for (const [counted] of taken) {
        sketches.delete(counted)
        floors.delete(counted)
      }
      return {
        call: taken.length > 0 ? withCallers(call, new Map(taken), at) : call,
        putBack() {
          for (const [counted, sketch] of taken) for (const [name, tally] of sketch) add(counted, name, tally)
        },
      }
    },
  }
}

/** @param floor no count is below this one: the search ends at a counter with it, which is soon, because new counters come last */
function leastOf(sketch: ReadonlyMap<CallerName, Tally>, floor: number): [name: CallerName, count: number] {
  let least: CallerName = ''
  let smallest = Number.POSITIVE_INFINITY
  for (const [name, { count }] of sketch) {
    if (count >= smallest) continue
    least = name
    smallest = count
    if (count <= floor) break
  }
  return [least, smallest]
}

/** `192.0.2.0/24` or `2001:db8:1::/48`. @returns undefined if the text is not an address */
export function networkText(text: string): string | undefined {
  const address = parseAddress(text)
  if (!address) return undefined
  const prefix = isIPv4(address) ? PREFIX.ipv4 : PREFIX.ipv6
  return `${addressText(networkOf(address, prefix))}/${prefix}`
}
