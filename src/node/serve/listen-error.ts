/** Why a server cannot listen, and what to do. @param error of Node */
export function listenError(error: NodeJS.ErrnoException, host: string, port: number): Error {
  switch (error.code) {
    case 'EADDRINUSE':
      return new Error(`Port ${port} is in use. Free it, or choose another one with --port.`)
    case 'EACCES':
      return new Error(
        `Port ${port} needs a privilege. Choose one above 1023 with --port, or grant CAP_NET_BIND_SERVICE.`,
      )
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
      return new Error(`${host} is not an address of this machine. Choose another one with --host.`)
    default:
      return error
  }
}
