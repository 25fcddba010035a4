/** What a rule counts by: what a user writes, and the schema that checks it. Messages as in rule-schema.ts. */
import * as v from 'valibot'

/**
 * What of a request is counted apart. A request that has no such header, claim, route, country or network is counted
 * with all others that have none; one without a credential has no consumer, credential or claim, and rules by those
 * do not apply to it. `global` stands alone: everybody together, and on Upstash in one queue.
 */
export type By =
  | 'consumer'
  | 'credential'
  | 'address'
  | 'route'
  | 'method'
  | 'host'
  | 'country'
  | 'asn'
  | 'global'
  | `header:${string}`
  | `claim:${string}`

const BY =
  "is nothing to count by. Use 'consumer', 'credential', 'address', 'route', 'method', 'host', 'header:<name>', 'claim:<name>', 'country', 'asn' or 'global'."

const PLAIN_BY = /^(consumer|credential|address|route|method|host|country|asn|global)$/
/** RFC 9110, section 5.6.2; header names are written in lower case. */
const HEADER_BY = /^header:[!#$%&'*+.^_`|~0-9a-z-]{1,64}$/
const CLAIM_BY = /^claim:.{1,128}$/s

const onePart = v.custom<By>(
  input => typeof input === 'string' && [PLAIN_BY, HEADER_BY, CLAIM_BY].some(form => form.test(input)),
  issue =>
    typeof issue.input === 'string' && issue.input.startsWith('header:')
      ? "names no header. Write it in lower case, as in 'header:x-tenant'."
      : BY,
)

const MAX_PARTS = 6

export const by = v.union(
  [
    onePart,
    v.pipe(
      v.array(onePart, BY),
      v.minLength(1, BY),
      v.maxLength(MAX_PARTS, `has more than ${MAX_PARTS} parts. Count by fewer.`),
      v.check(parts => new Set(parts).size === parts.length, 'names a part twice. Leave one out.'),
      v.check(
        parts => parts.length === 1 || !parts.includes('global'),
        "has 'global' beside other parts. Leave it out: whoever is counted apart is not counted together.",
      ),
    ),
  ],
  issue => byMessage(issue.input),
)

/** What is wrong with the first part that is wrong. */
function byMessage(input: unknown): string {
  if (!Array.isArray(input)) return v.safeParse(onePart, input).issues?.[0].message ?? BY
  const wrong = input.find(part => !v.is(onePart, part))
  return wrong === undefined
    ? BY
    : `holds '${String(wrong)}', which ${v.safeParse(onePart, wrong).issues?.[0].message ?? BY}`
}
