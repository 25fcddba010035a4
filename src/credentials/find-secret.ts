/** Finds our own secrets in texts that are stored and shown in clear: those of administrators, and identities of limits by name. */
import { checksum } from './api-key.ts'

const WORD = /[0-9A-Za-z][0-9A-Za-z._-]*[0-9A-Za-z]/g

/** What an API key, signed or not, or a service token ends with, and how each begins. One pattern for both would take quadratic time. */
const TAIL = /_(?:[0-9A-Za-z]{36,37}|[0-9A-Za-z]{49}|([0-9A-Za-z]{30}[lt][0-9A-Za-z]{27}))(?![0-9A-Za-z])/g
const START = /(?<![a-z0-9])[a-z][a-z0-9]{1,11}_/g
const MAX_LENGTH = 160

/** Replaces words with an API key or a service token in them, of any deployment. A signed key has no checksum, so its form decides. */
export const withoutSecrets = (text: string): string =>
  text.replace(WORD, word => (isSecretIn(word) ? '…' : word))

function isSecretIn(word: string): boolean {
  for (const { index, 0: tail, 1: signedTail } of word.matchAll(TAIL)) {
    const end = index + tail.length
    const text = word.slice(Math.max(0, end - MAX_LENGTH), end)
    for (const start of text.slice(0, 1 - tail.length).matchAll(START)) {
      const found = text.slice(start.index)
      if (signedTail || checksum(found.slice(0, -6)) === found.slice(-6)) return true
    }
  }
  return false
}

export const hasSecret = (text: string): boolean => withoutSecrets(text) !== text
