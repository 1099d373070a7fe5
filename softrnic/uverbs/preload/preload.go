// Package preload contains the library that is preloaded into unmodified RDMA programs (folder shim
// beside it), as `make verbs` has built it. If this program was built without the library, Library
// returns false.
package preload

import "embed"

// Name is the name of the library's file in folder lib.
const Name = "librdmalab-verbs.so"

//go:embed lib
var files embed.FS

// Library returns the bytes of the library. It returns false if the library was not built before
// this program was built.
func Library() ([]byte, bool) {
	b, err := files.ReadFile("lib/" + Name)
	return b, err == nil
}
