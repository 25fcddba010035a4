/** Checks of texts that the config, the environment, the command line and credentials share. */

/** The name of an environment. */
export const ENVIRONMENT = /^[a-z0-9]{1,16}$/

/** 1 to 64 letters, digits, `.`, `_` and `-`, beginning with a letter or digit: safe in keys and headers. */
export function isConsumerName(text: string): boolean {
  return /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(text)
}

/** Whether a text is an http(s) URL to which the path of a request can be appended. */
export function isOriginUrl(text: string): boolean {
  if (!URL.canParse(text)) return false
  const url = new URL(text)
  return /^https?:$/.test(url.protocol) && !url.search && !url.hash && !url.username && !url.password
}

/**
 * Whether a text is an http(s) URL that the store's client accepts: its host does not begin with `$`, and it has no credentials, which
 * are not part of a REST URL.
 */
export function isStoreUrl(text: string): boolean {
  if (!/^https?:\/\/[^\s#$./?]/.test(text) || !URL.canParse(text)) return false
  const { username, password } = new URL(text)
  return !username && !password
}
