package main

import (
	"fmt"
	"net"
)

// Where servers listen, in runs that have some.
const (
	gethPort  = "18545"
	gethAt    = "127.0.0.1:" + gethPort
	oursAt    = "127.0.0.1:18645"
	metricsAt = "127.0.0.1:18646"
)

// ports are those that a run needs.
func (o options) ports() []string {
	switch {
	case o.course.blocks > 0 || o.load > 0:
		return []string{gethAt, oursAt}
	case o.soak > 0:
		return []string{oursAt, metricsAt}
	default:
		return nil
	}
}

// free refuses addresses where somebody listens already: he would be asked, and taken for one of ours.
func free(addresses ...string) error {
	for _, address := range addresses {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("this run needs %s for itself; end what listens there, another run perhaps: %w", address, err)
		}
		if err := listener.Close(); err != nil {
			return err
		}
	}
	return nil
}
