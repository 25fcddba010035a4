/** Finds our own secrets in texts that administrators give, which are stored and shown in clear. */
import { checksum } from './api-key.ts'

const WORD = /[0-9A-Za-z][0-9A-Za-z._-]*[0-9A-Za-z]/g

/** An API key, signed or not, or a service token: a prefix, and what follows the last `_`. */
const FORM =
  /[a-z][a-z0-9]{1,11}_(?:.*_)?(?:[0-9A-Za-z]{36,37}|[0-9A-Za-z]{49}|([0-9A-Za-z]{30}[lt][0-9A-Za-z]{27}))$/

/** Replaces words that are an API key or a service token, of any deployment. A signed key has no checksum, so its form decides. */
export const withoutSecrets = (text: string): string =>
  text.replace(WORD, word => {
    const [found, signedTail] = FORM.exec(word) ?? ['']
    return signedTail || (found && checksum(found.slice(0, -6)) === found.slice(-6)) ? '…' : word
  })

export const hasSecret = (text: string): boolean => withoutSecrets(text) !== text
