package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// warnNoLibrary writes a line to w if env, which ProgramEnv has returned, names no library for
// libibverbs programs: without the line such a program only finds no device.
func warnNoLibrary(w io.Writer, env []string) {
	for _, v := range env {
		if strings.HasPrefix(v, uverbs.EnvTree+"=") {
			return
		}
	}
	fmt.Fprintln(w, "this rdmalab has no library for libibverbs programs on this processor, so they find no device: use one for amd64 or arm64")
}
