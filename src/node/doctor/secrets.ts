/** Hides what was given to an examination, in whatever form: users paste the report into issues. */

/** Shorter ones would also be found inside words. */
const MIN_LENGTH = 4

/** @param inputs URLs, tokens and keys @returns replaces them in all texts of a value */
export function hiderOf(inputs: readonly (string | undefined)[]): <T>(value: T) => T {
  const forms = inputs
    .flatMap(input => (input === undefined ? [] : partsOf(input)))
    .flatMap(part => {
      const bytes = Buffer.from(part)
      return [
        part,
        encodeURIComponent(part),
        JSON.stringify(part).slice(1, -1),
        bytes.toString('base64'),
        bytes.toString('base64url'),
      ]
    })
  // The longest first, so that no rest of it stays.
  const secrets = forms.filter(({ length }) => length >= MIN_LENGTH).sort((a, b) => b.length - a.length)
  const patterns = secrets.map(secret => new RegExp(secret.replaceAll(/\W/g, String.raw`\$&`), 'gi'))
  const hide = (text: string) =>
    patterns.reduce((hidden, pattern) => hidden.replaceAll(pattern, '<hidden>'), text)
  return value =>
    JSON.parse(JSON.stringify(value), (_, each) => (typeof each === 'string' ? hide(each) : each))
}

function partsOf(input: string): string[] {
  if (!/^[a-z]+:\/\//i.test(input) || !URL.canParse(input)) return [input]
  const { href, host, hostname, username, password, pathname, search } = new URL(input)
  // The names of this machine are not secret.
  if (/^(localhost|127\.0\.0\.1|\[::1\])$/.test(hostname)) return [username, password]
  // Upstash puts the name of the database into the first label.
  return [
    href,
    host,
    hostname,
    hostname.split('.')[0]!,
    username,
    password,
    pathname.slice(1),
    search.slice(1),
  ]
}
