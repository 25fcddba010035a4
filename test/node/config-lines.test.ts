import { describe, expect, it } from 'vitest'
import { lineOf } from '../../src/node/config-lines.ts'

const SOURCE = `import { defineConfig, jwt } from 'sluicegate' // {
const own = [{ name: 'own' }]

/* rules: [ */
export default defineConfig({
  origin: 'https://api.example.com/{x}', // it's a URL
  "plans": ['free', \`pro\`],
  rules: [
    { name: 'a', match: { path: '/*' } },
    // two
    {
      name: 'b', limit: process.env.LIMIT,
      plans: { 'x-y': { limit: 1 } },
    },
  ],
  limits: { zendesk: own },
  routes: [...own, { name: 'later' }],
  credentials: { jwt: {
    auth0: jwt({
      issuer: 'x',
    }) } },
})
`

describe('the line of a setting', () => {
  it.each([
    ['origin', 6],
    ['plans', 7],
    ['plans[1]', 7],
    ['rules', 8],
    ['rules[0].match.path', 9],
    ['rules[1]', 11],
    ['rules[1].limit', 12],
    ['rules[1].plans.x-y.limit', 13],
    ['credentials.jwt.auth0.issuer', 20],
    ['process.env.LIMIT', 12],
  ])('for %s is %i', (path, line) => {
    expect(lineOf(SOURCE, path)).toBe(line)
  })

  it.each([
    ['rules[1].period', 'is missing', 11],
    ['limits.zendesk[0].name', 'is written elsewhere', 16],
    ['routes[3].name', 'follows spread items', 17],
    ['config', 'is the whole config', 5],
  ])('for %s, which %s, is that of the enclosing setting', (path, _, line) => {
    expect(lineOf(SOURCE, path)).toBe(line)
  })

  it.each([
    ['a setting that the file does not contain', SOURCE, 'orgin'],
    ['a variable that is not read', SOURCE, 'process.env.OTHER'],
    ['a config that is not a literal', 'const config = {}\nexport default config\n', 'rules[0].name'],
    ['an unclosed literal', 'export default {', 'rules[0]'],
    ['an empty file', '', 'config'],
  ])('is unknown for %s', (_, source, path) => {
    expect(lineOf(source, path)).toBeUndefined()
  })
})
