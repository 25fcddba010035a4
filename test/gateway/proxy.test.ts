import { expect, it } from 'vitest'
import { targetUrl } from '../../src/edges/gateway/proxy.ts'

it.each([
  ['http://gateway.test/a/b?c=%20d', 'https://api.example.com', 'https://api.example.com/a/b?c=%20d'],
  ['http://gateway.test/', 'https://api.example.com', 'https://api.example.com/'],
  ['http://gateway.test/a', 'https://api.example.com:8443/base/', 'https://api.example.com:8443/base/a'],
  ['http://gateway.test/a%2Fb//c', 'http://10.0.0.1/base', 'http://10.0.0.1/base/a%2Fb//c'],
  [
    'http://gateway.test//evil.example/x',
    'https://api.example.com',
    'https://api.example.com//evil.example/x',
  ],
  ['http://gateway.test/a?b', 'https://a.example?', 'https://a.example/a?b'],
  ['http://gateway.test/a?b', 'https://a.example/base/?', 'https://a.example/base/a?b'],
  ['http://gateway.test/a?b', 'https://a.example/base#', 'https://a.example/base/a?b'],
  ['http://gateway.test/a?b', 'route', 'http://gateway.test/a?b'],
])('%s at origin %s is %s', (url, origin, target) => expect(targetUrl(url, origin)).toBe(target))
