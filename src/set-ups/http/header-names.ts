/** Names of request headers, as origins read them. */

/**
 * Folds the name of a header. Servers that pass headers on as variables (CGI, RFC 3875, section 4.1.18; WSGI, Rack) read X_Consumer_Id
 * as X-Consumer-Id, and some treat every character like that if it is not a letter or digit.
 *
 * @param name in lower case, as in `Headers`
 */
export const foldHeaderName = (name: string) => name.replace(/[^a-z0-9-]/g, '-')

const METHOD_OVERRIDES = new Set(['x-http-method-override', 'x-http-method', 'x-method-override'])

/** Whether a header makes many frameworks treat a POST as another method. @param name in lower case */
export const isMethodOverride = (name: string) =>
  name.includes('method') && METHOD_OVERRIDES.has(foldHeaderName(name))
