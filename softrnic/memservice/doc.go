// Package memservice is the service by which a host shares its memory: it registers a region and a
// table of lock words in device memory, connects clients to them, and can end all connections of
// one client at once. After a connection is made only the NICs work; the host's processor is not
// involved in WRITE, READ and atomics.
//
// # Protocol
//
// A client sends one request in the private data of a REQ of the connection manager and gets one
// answer. (On a rack that connects by an exchange over TCP, this exchange carries both.) Request
// and answer begin with a version and a kind. Each field below has its length in bytes behind its
// name; numbers are big-endian:
//
//	request  0 version | 1 kind | 2 …
//	  connect   owner 4 | replaces 8 | bytes 4 | work ≤ 64
//	  end       connection 8
//	  fence     owner 4
//	  who       owner 4
//	  retire    owner 4
//	  fence to  owner 4
//	  join      owner 4 | replaces 8 | connection 8 | former owner 4, up to 8 of these
//	  disconnect owner 4
//	  take      owner 4 | number 4 | offset 8 | words 4 | value 8
//	  disconnect others owner 4
//	  reserve   owner 4
//	answer   0 version | 1 kind of the request, or refused | 2 …
//	  connect   connection 8 | boot 8 | memory 20 | locks 20 | work ≤ 64
//	  end       -
//	  fence     -
//	  who       flags 1 | connections 4 | address 16
//	  retire    owner 4
//	  fence to  -
//	  join      -
//	  disconnect -
//	  take      index 4
//	  disconnect others owner 4
//	  reserve   owner 4
//	  refused   code 1
//	region   address 8 | R_Key 4 | length 8
//
// The boot in the answer to connect is different in each incarnation of the service.
//
// A request without private data is a connect to the shared region by a client without an owner: by
// Dial, by threads that share a connection (DialShared), or by the switch. Such a client sends no
// end request.
//
// The answer to connect is the private data of the REP. All other requests make no connection:
// their answer is the private data of a REJ (rdmacm.Request.Answer). They are sent in this way, and
// not as SIDR_REQ and SIDR_REP, for three reasons. A SIDR_REP that is no refusal must name a UD
// queue pair. Every dialer and listener can carry a REQ and its REJ: the exchange over TCP,
// programs behind package ipc, the simulator. And the requests of a service wait in one queue, so
// that a fence is served after the connects that arrived before it.
//
// # Owners
//
// An owner is a number that a client of a store chooses for itself. Fence ends all connections of
// an owner and refuses new ones, so that none of its requests is executed any more. FenceTo does
// this for all owners up to a number, Retire also for all that have connected so far. Reserve is
// Retire for the next user of the memory: if several callers request the same number, only one gets
// it. Disconnect ends the connections but refuses no new ones. A connection that several owners use
// (Join) ends with any of them. Every host that can connect may also fence: the service trusts its
// network, as RDMA does.
//
// The service remembers 65,536 owners. When its table of owners is full, it removes those of the
// half with the smaller numbers, except owners that have had a connection lately. A removed owner
// counts as fenced.
//
// # Tables
//
// A table is an array of little-endian words in the shared region; a word that is 0 is free. By
// Take a client makes the service write a value into the first free word. So clients divide among
// themselves the things that the words represent, for example the blocks of package fusee. Clients
// may read and clear words by themselves. Each owner numbers its requests; the service remembers
// each owner's last request and the word that it got, so that a request whose answer was lost can
// be repeated.
//
// A Worker (package perf has one) lets the host take part in a connection, with further data in
// connect and its answer.
package memservice
