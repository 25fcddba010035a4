/**
 * Tags: three base62 letters that stand for a rule in the store. `Rule.tag` identifies its record in the state of an identity,
 * `Rule.family` its overrides. A record has room for three letters, so there are 238,328 tags. The rules and plans of a config can
 * need 12,000 of them, and then several hundred have the same hash.
 */
import { BASE62 } from '../base62.ts'
import { fnv1a } from '../hash.ts'

interface Tagged {
  readonly name: string
  readonly tag: string
  readonly family: string
}

/** Hashes what a tag stands for: an FNV-1a hash cut to three letters. It never changes, because the store has records with these tags. */
export function tagOf(parts: readonly (string | number)[]): string {
  const hash = fnv1a(parts.join(' '))
  return Array.from({ length: 3 }, (_, i) => BASE62[Math.floor(hash / 62 ** i) % 62]).join('')
}

/**
 * Gives each rule tags that no other rule of the list has. A rule keeps its hashes, unless an earlier rule has the same. It then gets
 * the first free one of a row of other hashes.
 *
 * The order of the list decides, and nothing that is added at its end changes the tag of an earlier rule. Without such a preference,
 * a new rule would take the tag of an old one in half of the cases. If two rules with the same hash change places, or the first of
 * them is removed, then the second one gets the tag of the first: for up to one period it reads the counts of that rule. This is as
 * likely as two rules with the same hash in successive configs: 1 in 238,328 for each pair. All other rules keep their tags.
 *
 * Variants of a rule for several plans may share a tag, because a caller has one plan.
 */
export function withUniqueTags<T extends Tagged>(rules: readonly T[]): T[] {
  const tags = new Map<string, string>()
  const families = new Map<string, string>()
  return rules.map(rule => {
    const tag = findFreeTag(rule.name, rule.tag, tags)
    const family = findFreeTag(rule.name, rule.family, families)
    tags.set(tag, rule.name)
    families.set(family, rule.name)
    return tag === rule.tag && family === rule.family ? rule : { ...rule, tag, family }
  })
}

/**
 * Finds a tag that no other rule has.
 * @param name of the rule
 * @param tag its hash, which is returned if it is free
 * @param owners the names of the rules that have tags, by tag
 */
export function findFreeTag(name: string, tag: string, owners: ReadonlyMap<string, string>): string {
  let free = tag
  for (let attempt = 1; (owners.get(free) ?? name) !== name; attempt++) free = tagOf([name, tag, attempt])
  return free
}
