/** `npm run check:links` requests the links to other sites. The tests themselves do not use the internet. */
import { createServer } from 'node:http'
import { expect, it, onTestFinished } from 'vitest'
import { externalLinksOf, failureOf } from '../../docs/programs/style/check-links.ts'

it('finds links to other sites, and leaves out code, examples and own pages', () => {
  const page = [
    '[a](https://a.test/x) [own](rules.md) [example](https://api.example.com/y) `[code](https://code.test)`',
    '[b]: https://b.test/z#part',
    '```sh\n[c](https://c.test)\n```',
  ].join('\n')
  expect(externalLinksOf(page)).toEqual(['https://a.test/x', 'https://b.test/z#part'])
})

it('reports a page that does not exist, and a site that does not answer', async () => {
  const server = createServer((request, response) => {
    response.writeHead(request.url === '/there' ? 200 : 404).end()
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  onTestFinished(() => void server.close())
  expect(await failureOf(`http://127.0.0.1:${port}/there`)).toBeUndefined()
  expect(await failureOf(`http://127.0.0.1:${port}/gone`)).toBe('status 404')
  expect(await failureOf('http://127.0.0.1:1/')).toBeTypeOf('string')
})
