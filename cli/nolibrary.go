package cli

import (
	"fmt"
	"io"
)

// warnNoLibrary writes a line to w if rdmalab has no library for libibverbs programs (has, see
// preload.Library): without the line such a program only finds no device.
func warnNoLibrary(w io.Writer, has bool) {
	if !has {
		fmt.Fprintln(w, "this rdmalab has no library for libibverbs programs on this processor, so they find no device: use one for amd64 or arm64")
	}
}
