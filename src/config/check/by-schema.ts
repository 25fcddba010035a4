/** The schema of `by`, made from the table of identity parts. Messages as in rule-schema.ts. */
import * as v from 'valibot'
import { type By, type IdentityPart, identityParts, nameForms, partOf } from '../identity-parts.ts'
import { didYouMean } from './did-you-mean.ts'
import { show } from './mistake.ts'
import { listed } from './values.ts'

/** The parts as a user writes them: `'consumer'`, `'header:<name>'`. */
const PARTS = Object.entries<IdentityPart>(identityParts).map(([part, { isNamed }]) =>
  isNamed ? `'${part}:<name>'` : `'${part}'`,
)

/** Names of parts in other products, for hints. */
const SYNONYMS: Readonly<Record<string, string>> = {
  ip: 'address',
  'ip-address': 'address',
  'api-key': 'credential',
  key: 'credential',
  token: 'credential',
}

const USE = `Use ${listed(PARTS, 'or')}.`
const BY = `is not an identity part. ${USE}`

const onePart = v.custom<By>(
  input => flawOf(input) === undefined,
  ({ input }) => flawOf(input) ?? BY,
)

function flawOf(input: unknown): string | undefined {
  if (typeof input !== 'string') return BY
  const [named] = Object.entries(nameForms).filter(([part]) => input.startsWith(`${part}:`))
  if (!named)
    return PARTS.includes(`'${input}'`) ? undefined : `is not an identity part.${suggest(input)} ${USE}`
  const [part, { form, fix }] = named
  return form.test(input.slice(part.length + 1)) ? undefined : fix
}

function suggest(word: string): string {
  const other = Object.hasOwn(SYNONYMS, word.toLowerCase()) ? SYNONYMS[word.toLowerCase()] : undefined
  return other === undefined ? didYouMean(word, Object.keys(identityParts)) : ` Did you mean '${other}'?`
}

const MAX_PARTS = 6

export const by = v.union(
  [
    onePart,
    v.pipe(
      v.array(onePart, BY),
      v.minLength(1, BY),
      v.maxLength(MAX_PARTS, `has more than ${MAX_PARTS} parts. Use fewer.`),
      v.check(parts => new Set(parts).size === parts.length, 'names a part twice. Leave one out.'),
      v.check(
        parts => parts.length === 1 || !parts.some(isAlone),
        ({ input }) =>
          `combines '${input.find(isAlone)}' with other parts. Use it alone, because it counts all callers together, or leave it out.`,
      ),
    ),
  ],
  issue => byMessage(issue.input),
)

function isAlone(part: By): boolean {
  return partOf(part).isAlone ?? false
}

/** The message for the first invalid part. */
function byMessage(input: unknown): string {
  if (!Array.isArray(input)) return flawOf(input) ?? BY
  const wrong = input.find(part => flawOf(part) !== undefined)
  return wrong === undefined ? BY : `contains ${show(wrong)}, which ${flawOf(wrong)}`
}
