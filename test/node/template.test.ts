/** The template as `init` copies it, and as Cloudflare's deploy button clones it: with the files and texts that the button reads. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseEnv } from 'node:util'
import { expect, it, onTestFinished } from 'vitest'
import { initProject } from '../../src/node/init.ts'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const TEMPLATE = join(ROOT, 'template')
const read = (folder: string, name: string) => readFileSync(join(folder, name), 'utf8')

it.each([
  ['this repository', ROOT],
  ['the template', TEMPLATE],
])(
  "package.json has the texts of Cloudflare's templates, with a description of each secret: %s",
  (_, folder) => {
    const { name, description, cloudflare } = JSON.parse(read(folder, 'package.json'))
    expect([name, description]).toEqual([
      expect.stringMatching(/^[a-z-]+$/),
      expect.stringMatching(/^\S.{20,}$/),
    ])
    expect(cloudflare.label).toMatch(/^[A-Z]/)
    expect(cloudflare.products.length).toBeGreaterThan(0)
    expect(cloudflare.products.length).toBeLessThanOrEqual(3)
    const secrets = Object.keys(parseEnv(read(folder, '.dev.vars.example'))).sort()
    expect(Object.keys(cloudflare.bindings).sort()).toEqual(secrets)
  },
)

it('the README has a part for the dashboard, without commands and pictures', () => {
  const text = read(TEMPLATE, 'README.md')
  const [, part] = /<!-- dash-content-start -->(.*)<!-- dash-content-end -->/s.exec(text)!
  expect(part!.trim()).not.toBe('')
  expect(part).not.toMatch(/```|!\[|npm /)
})

it.each([
  ['cloned by the deploy button', (folder: string) => execFileSync('cp', ['-r', TEMPLATE, folder])],
  ['made by init', (folder: string) => initProject(folder)],
])('git ignores the secrets in a project %s', (_, make) => {
  const parent = mkdtempSync(join(tmpdir(), 'sluice-'))
  onTestFinished(() => rmSync(parent, { recursive: true }))
  const folder = join(parent, 'my-api')
  make(folder)
  writeFileSync(join(folder, '.dev.vars'), '')
  execFileSync('git', ['init', '--quiet'], { cwd: folder })
  const files = execFileSync('git', ['ls-files', '--others', '--exclude-standard'], {
    cwd: folder,
    encoding: 'utf8',
  })
  expect(files.split('\n')).not.toContain('.dev.vars')
  expect(files.split('\n')).toEqual(
    expect.arrayContaining(['.dev.vars.example', '.gitignore', 'sluice.config.ts']),
  )
})
