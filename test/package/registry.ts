/** A registry with versions of this package; for all other packages it redirects to the registry of this machine. */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { ROOT, run } from './installed.ts'

export interface TestRegistry {
  url: string
  /** Makes a tarball the latest version of the package. */
  publish(version: string, tarball: string): void
  close(): void
}

export async function startRegistry(): Promise<TestRegistry> {
  const { stdout } = await run(ROOT, 'npm', ['config', 'get', 'registry'])
  const tarballs = new Map<string, Buffer>()
  let latest = ''
  const server = createServer((request, response) => {
    const path = request.url!.slice(1)
    const version = /^sluicegate\/-\/sluicegate-(.+)\.tgz$/.exec(path)?.[1]
    if (version) response.end(tarballs.get(version))
    else if (path === 'sluicegate')
      response
        .writeHead(200, { 'content-type': 'application/json', 'cache-control': 'no-store' })
        .end(JSON.stringify(packument()))
    else response.writeHead(302, { location: new URL(path, stdout.trim()).href }).end()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`

  /** The document of the package: every version, with its manifest. */
  function packument() {
    const own = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
    const versions = [...tarballs].map(([version, tarball]) => [
      version,
      {
        ...{ ...own, version, scripts: undefined, devDependencies: undefined },
        dist: {
          tarball: `${url}sluicegate/-/sluicegate-${version}.tgz`,
          integrity: `sha512-${createHash('sha512').update(tarball).digest('base64')}`,
        },
      },
    ])
    return { name: own.name, 'dist-tags': { latest }, versions: Object.fromEntries(versions) }
  }

  return {
    url,
    publish(version, tarball) {
      tarballs.set(version, readFileSync(tarball))
      latest = version
    },
    close() {
      server.closeAllConnections()
      server.close()
    },
  }
}
