package doctor

import (
	"context"

	"github.com/rdmalab/rdmalab/softrnic/uverbs/preload"
)

// lookLibrary says whether this program has the library that unmodified libibverbs programs load.
func lookLibrary(context.Context, *System) Finding {
	_, has := preload.Library()
	return library(has)
}

func library(has bool) Finding {
	if has {
		return good("inside", "unmodified libibverbs programs use the NICs")
	}
	return lacking("not for this processor", "unmodified libibverbs programs find no device; Go programs do", "use a rdmalab for amd64 or arm64")
}
