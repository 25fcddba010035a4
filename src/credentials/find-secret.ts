/** Finds our own secrets in texts that are stored and shown in clear: those of administrators, and identities of limits by name. */
import { checksum } from './api-key.ts'

const WORD = /[0-9A-Za-z][0-9A-Za-z._-]*[0-9A-Za-z]/g

/** The prefix of an API key, signed or not, or of a service token, and what follows the last `_`. One pattern for both would take quadratic time. */
const START = /[a-z][a-z0-9]{1,11}_/
const TAIL = /_(?:[0-9A-Za-z]{36,37}|[0-9A-Za-z]{49}|([0-9A-Za-z]{30}[lt][0-9A-Za-z]{27}))$/

/** Replaces words that are an API key or a service token, of any deployment. A signed key has no checksum, so its form decides. */
export const withoutSecrets = (text: string): string =>
  text.replace(WORD, word => {
    // Without a prefix, this is the last character, which TAIL does not match.
    const found = word.slice(word.search(START))
    const [tail, signedTail] = TAIL.exec(found) ?? []
    return signedTail || (tail && checksum(found.slice(0, -6)) === found.slice(-6)) ? '…' : word
  })

export const hasSecret = (text: string): boolean => withoutSecrets(text) !== text
