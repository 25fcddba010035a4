/** Reads what a request sends to a route: its query and its body, checked against their schemas. */
import { checkInput } from './check-input.ts'
import type { InputSchema } from './json-schema.ts'
import { invalidInput } from './problems.ts'
import { readJson } from './read-body.ts'

/** Both as their schemas have them; `never`, because only the route knows its schemas. */
export interface Input {
  query: never
  body: never
}

/** @throws ApiError */
export async function readInput(
  { query, body }: { query?: InputSchema; body?: InputSchema },
  request: Request,
  url: URL,
): Promise<Input> {
  const parameters = queryOf(url)
  const [unknown] = query ? [] : Object.keys(parameters)
  if (unknown !== undefined) throw invalidInput(`?${unknown}`, 'Unknown parameter. Leave it out.')
  if (!body && Number(request.headers.get('content-length')) > 0)
    throw invalidInput(
      '',
      'This request takes no body. Leave it out; a reason can be in the header Sluice-Reason.',
    )
  return {
    query: query && checkInput(query, parameters, '?'),
    body: body && checkInput(body, await readJson(request)),
  } as Input
}

/** @throws ApiError for a parameter that is there twice */
function queryOf(url: URL): Record<string, string> {
  const query = new Map<string, string>()
  for (const [name, value] of url.searchParams) {
    if (query.has(name)) throw invalidInput(`?${name}`, 'It is there twice. Send it once.')
    query.set(name, value)
  }
  return Object.fromEntries(query)
}
