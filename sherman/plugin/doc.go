// Package plugin registers the store Sherman: its part of a host's daemon, which makes the host a
// compute node of a tree, and its commands.
package plugin
