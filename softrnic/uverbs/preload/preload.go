// Package preload holds the library that is preloaded into unmodified RDMA programs (folder shim
// beside it), as `make verbs` has built it. A program that was built without it says so.
package preload

import "embed"

// Name is the file that the library is built to, in folder lib.
const Name = "librdmalab-verbs.so"

//go:embed lib
var files embed.FS

// Library returns the library's bytes. False: it was not built on the machine on which this program
// was.
func Library() ([]byte, bool) {
	b, err := files.ReadFile("lib/" + Name)
	return b, err == nil
}
