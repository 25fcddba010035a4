/** Whether a URL can be reached: its name, and its TLS. For stores and gateways. */
import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { isIP } from 'node:net'
import { connect } from 'node:tls'
import { isOnThisMachine } from '../../ops/store-failure.ts'
import { describeTlsFailure } from '../tls-failure.ts'
import type { Checks } from './checks.ts'
import { type Finding, fault, limit, ok } from './findings.ts'

/** @param urls of servers that are alike. The finding is about the first that is not ok, or the first */
export function reachChecks(what: 'store' | 'gateway', urls: readonly string[]): Checks {
  const onEach = (run: (host: string, url: URL) => Promise<Finding>) => async () => {
    const parsed = urls.map(url => new URL(url))
    const all = await Promise.all(parsed.map(url => run(url.hostname.replace(/^\[|\]$/g, ''), url)))
    return all.find(({ verdict }) => verdict !== 'ok') ?? all[0]!
  }
  return { [`${what}-address`]: onEach(checkName), [`${what}-tls`]: onEach(checkTls) }
}

async function checkName(host: string): Promise<Finding> {
  if (host === '' || isIP(host)) return ok`The host is an IP address or a socket, which needs no DNS.`
  const startedAt = performance.now()
  return lookup(host).then(
    () => ok`The name of the host resolves in ${Math.round(performance.now() - startedAt)} ms.`,
    ({ code }) =>
      fault`The name of the host does not resolve (${code}). → Copy the URL again. A deleted database has no name any more.`,
  )
}

const TIMEOUT_MS = 5000

async function checkTls(host: string, { protocol, port, href }: URL): Promise<Finding> {
  if (!/^(https|rediss):$/.test(protocol)) {
    if (isOnThisMachine(href)) return ok`No TLS, which is not needed on this machine.`
    return protocol === 'redis:'
      ? limit`There is no TLS: passwords and keys travel in clear text. → Use rediss://, unless the network between is your own.`
      : fault`There is no TLS: tokens and keys travel in clear text. → Use an https URL. For the bridge, put a proxy with TLS in front of it.`
  }
  const isHttps = protocol === 'https:'
  const servername = isIP(host) ? '' : host
  const socket = connect({ host, port: Number(port || (isHttps ? 443 : 6379)), servername })
  const failure = await once(socket, 'secureConnect', { signal: AbortSignal.timeout(TIMEOUT_MS) }).catch(
    // A server without TLS waits for the rest of a command.
    ({ name, code }) => (name !== 'AbortError' ? code : socket.connecting ? 'ETIMEDOUT' : 'SSL_SILENT'),
  )
  const version = socket.getProtocol()
  socket.destroy()
  if (typeof failure !== 'string') return ok`${version!}, with a certificate that is valid.`
  const [what, fix] = describeTlsFailure(failure, isHttps) ?? [
    `No connection can be made (${failure}).`,
    'Check the host and port of the URL, and the firewall.',
  ]
  return fault`${what} → ${fix}`
}
