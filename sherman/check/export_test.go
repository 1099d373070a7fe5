package check

import "slices"

// Has reports whether Problems has a problem of kind k.
func (r *Report) Has(k Kind) bool {
	return slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Kind == k })
}
