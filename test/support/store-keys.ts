/** The form that keys in the store have, whatever callers send (src/store/keys.ts). */

/** The characters of an escaped text (escape.ts). None of them has a meaning for Redis, for a cluster or for Sluice. */
const TEXT = "[\\w.%#!'()-]*"
const PARTS = `(?:[a-z]+(?:[._-]${TEXT})?(?:=${TEXT})?)(?:,[a-z]+(?:[._-]${TEXT})?(?:=${TEXT})?)*`
const OWNER = `c:(?:\\?|${TEXT}(?:~${TEXT})?)|ip:[\\da-f.:]+(?:/\\d+)?|ip:unknown|x:${PARTS}|l:[\\w-]+|global`

/** The state of an identity, the log of a rule or its chunks: printable, with one pair of braces around the owner. */
export const STATE_KEY = new RegExp(
  `^sluice:(?:[a-z0-9]{1,16}:)?\\{(?:${OWNER})\\}:(?:state|test)(?::${PARTS})?(?::log:[0-9A-Za-z]{3}(?::mid)?)?$`,
)
