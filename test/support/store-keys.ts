/** What keys of the store look like, whatever callers have put into them (src/store/keys.ts). */

/** What escape.ts leaves: nothing in it says anything to Redis, to a cluster or to us. */
const TEXT = "[\\w.%#!'()-]*"
const PARTS = `(?:[a-z]+(?:[._-]${TEXT})?(?:=${TEXT})?)(?:,[a-z]+(?:[._-]${TEXT})?(?:=${TEXT})?)*`
const OWNER = `c:(?:\\?|${TEXT}(?:~${TEXT})?)|ip:[\\da-f.:]+(?:/\\d+)?|ip:unknown|x:${PARTS}|l:[\\w-]+|global`

/** One pair of braces, at its place, and all of it printable: the state of an identity, or the log of a rule. */
export const STATE_KEY = new RegExp(
  `^sluice:(?:[a-z0-9]{1,16}:)?\\{(?:${OWNER})\\}:state(?::${PARTS})?(?::log:[0-9A-Za-z]{3})?$`,
)
